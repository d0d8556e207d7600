"""Settings: flag over environment over file over default; errors name the setting."""

import resource
from pathlib import Path

import pytest

from countless.core.parameters import seconds
from countless.errors import InvalidParameter
from countless.server.serve import MAX_OPEN_FILES, raise_file_limit
from countless.server.settings import PORT, Settings, load_settings


def test_flag_overrides_environment_overrides_file(tmp_path: Path) -> None:
    file = tmp_path / "countless.toml"
    file.write_text('port = 1\nhost = "::1"\nalpha = 0.1\nsilent_after = "500ms"\n')
    environment = {"COUNTLESS_PORT": "2", "COUNTLESS_ALPHA": "0.2", "COUNTLESS_ALLOW_PLAINTEXT": "true"}
    settings = load_settings({"port": 3, "alpha": None}, environment, file)
    assert (settings.port, settings.alpha, settings.host, settings.silent_after) == (3, 0.2, "::1", 0.5)
    assert settings.allow_plaintext
    assert settings.delta == Settings().delta
    assert load_settings({}, {}) == Settings()


def test_port_that_kubernetes_sets_is_ignored() -> None:
    assert load_settings({}, {"COUNTLESS_PORT": "tcp://10.96.0.17:2686"}) == Settings()
    assert Settings().port == PORT == 2686


@pytest.mark.parametrize(("wait", "silent_after", "least"), [("4s", "10s", "180"), ("71", "1s", "72")])
def test_wait_after_a_restore_in_which_clients_may_not_have_connected_is_refused(
    wait: str, silent_after: str, least: str, tmp_path: Path
) -> None:
    file = tmp_path / "countless.toml"
    file.write_text(f'restore_wait = "{wait}"\n')
    for flags, environment, path in (
        ({"restore_wait": wait}, {}, None),
        ({}, {"COUNTLESS_RESTORE_WAIT": wait}, None),
        ({}, {}, file),
    ):
        with pytest.raises(InvalidParameter, match=f"restore_wait must be at least {least}s "):
            load_settings(flags, {**environment, "COUNTLESS_SILENT_AFTER": silent_after}, path)
    assert load_settings({"restore_wait": f"{least}s", "silent_after": silent_after}, {}).restore_wait == float(least)


def test_soft_limit_on_open_files_is_raised() -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, MAX_OPEN_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("text", "value"), [("500ms", 0.5), ("10s", 10), ("2m", 120), ("1.5h", 5400), (7, 7)])
def test_duration_is_parsed_to_seconds(text: object, value: float) -> None:
    assert seconds(text) == value


def test_share_is_a_number_or_a_percentage_in_a_file_and_in_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "countless.toml"
    file.write_text('alpha = "0.7%"\nmax_share = "50%"\n')
    settings = load_settings({}, {"COUNTLESS_DELTA": "1%"}, file)
    assert (settings.alpha, settings.delta, settings.max_share) == (0.007, 0.01, 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALPHA", "70%"),
        ("ALPHA", "two%"),
        ("PORT", "many"),
        ("PORT", "70000"),
        ("ALPHA", "0.7"),
        ("DELTA", "0"),
        ("SCHEME", "magic"),
        ("ADVERSARY", "martian"),
        ("SILENT_AFTER", "10 parsecs"),
        ("SILENT_AFTER", "0"),
        ("ALLOW_PLAINTEXT", "maybe"),
        ("STATE_DIR", ""),
        ("MAX_COUNTERS", "0"),
    ],
)
def test_invalid_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidParameter, match=name.lower()):
        load_settings({}, {f"COUNTLESS_{name}": value})


@pytest.mark.parametrize("name", ["COUNTLESS_ALPA", "COUNTLESS_SILENT_AFER", "COUNTLESS_STATEDIR"])
def test_misspelt_variable_is_refused_with_the_one_that_was_meant(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"{name} is no setting: did you mean COUNTLESS_(AL|SIL|STATE_)"):
        load_settings({}, {name: "x"})


def test_variables_of_clients_of_a_service_and_of_others_are_no_misspelt_settings() -> None:
    service = {"COUNTLESS_PORT_2686_TCP_PORT": "2686", "COUNTLESS_SERVICE_HOST": "10.0.0.1"}
    client = {"COUNTLESS_NATS_CREDS": "file", "COUNTLESS_CERT": "file", "COUNTLESS_LOG_LEVEL": "info"}
    assert load_settings({}, {**service, **client, "COUNTLESS_COLOUR": "red", "ALPA": "1"}) == Settings()


@pytest.mark.parametrize("text", ["prot = 1", "port = [", 'port = "x"', "port = true", "alpha = []"])
def test_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "countless.toml"
    file.write_text(text)
    with pytest.raises(InvalidParameter):
        load_settings({}, {}, file)


@pytest.mark.parametrize("host", ["192.0.2.1", "::", "192.168.1.5", "example.org"])
def test_plaintext_beyond_loopback_must_be_allowed(host: str) -> None:
    with pytest.raises(InvalidParameter, match="--allow-plaintext"):
        Settings(host=host).require_safe()
    Settings(host=host, allow_plaintext=True).require_safe()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_plaintext_on_loopback_is_allowed(host: str) -> None:
    Settings(host=host).require_safe()
