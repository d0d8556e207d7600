"""Attack, simulate and audit the algorithms (needs the extra `lab`)."""

PANELS = {"Commands": ("attack", "simulate", "scaling", "audit", "report")}
