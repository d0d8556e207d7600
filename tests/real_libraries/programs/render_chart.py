"""Prints what Helm makes of the chart named by the first argument with the values on standard input, as JSON."""

import json
import sys

import helm_python as helm

values = json.load(sys.stdin)
report = helm.lint(sys.argv[1], values, strict=True)
problems = [each["error"] for each in report["messages"] if each["severity"] > 1]
with helm.Chart.load(sys.argv[1]) as chart:
    version = chart.version
    try:
        chart.validate_schema(values)
        manifests = chart.render(values, name="countless", namespace="default")
    except helm.HelmError as problem:
        problems, manifests = [str(problem)], {}
json.dump({"version": version, "problems": problems, "manifests": sorted(manifests.values())}, sys.stdout)
