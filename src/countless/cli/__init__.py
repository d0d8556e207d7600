"""Rate limits, spending limits and counts that hold across all your processes."""

LAB = ("demo", "lab")  # commands of the distribution `countless-lab`, found by their entry points
OTHERS: dict[str, str] = {}  # modules of commands of other packages, where these have no entry points

# In the order of `--help`. A command is a file with a function of its name and an EXAMPLE; a noun is a file with an
# `app` that has its commands, or a package with PANELS of its own.
PANELS = {
    "Start": ("demo", "serve", "plan"),
    "Limit": ("budget", "take"),
    "Count and read": ("add", "get", "rate", "top", "quantile", "watch", "counter"),
    "Operate": ("agent", "site", "token", "health", "doctor", "backup", "restore", "validate"),
    "Lab": ("lab",),
}
