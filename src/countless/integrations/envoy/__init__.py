"""Envoy's rate limit service, answered by `countless agent`: gateways and meshes made of Envoy share budgets.

`rules` reads the section `envoy` of the agent's file, `messages` are Envoy's, `decisions` translates, `server` is gRPC.
"""
