"""Budgets of tokens, money, requests and jobs at once for LiteLLM, over all replicas of a proxy.

    litellm_settings:
      callbacks: countless.integrations.litellm.limits
    callback_settings:
      countless:
        tokens: ["keys/{key}", "teams/{team}"]

`limits` is made when the proxy reads its configuration. A program without a proxy uses `SdkLimits`. The client is made
from the environment.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countless.integrations.litellm.proxy import ProxyLimits
    from countless.integrations.litellm.sdk import SdkLimits

__all__ = ["ProxyLimits", "SdkLimits", "limits"]
limits: "ProxyLimits"


def __getattr__(name: str) -> Any:
    if name == "SdkLimits":
        from countless.integrations.litellm.sdk import SdkLimits

        return SdkLimits
    if name not in __all__:
        raise AttributeError(name)
    from countless.integrations.litellm.proxy import FIELDS, ProxyLimits

    if name == "ProxyLimits":
        return ProxyLimits
    import litellm

    from countless.integrations.litellm.settings import settings_from

    settings = settings_from(litellm.callback_settings.get("countless"), "callback_settings.countless", FIELDS)
    globals()["limits"] = made = ProxyLimits(settings)
    return made
