"""Attack, simulate and audit the algorithms."""

PANELS = {"Commands": ("attack", "simulate", "scaling", "audit", "report")}
