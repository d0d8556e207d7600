"""Asks an agent, as Envoy does, for a unit of each path after the address; prints the codes of its answers."""

import sys

import grpc

from countless.integrations.envoy.messages import SERVICE, RateLimitRequest, RateLimitResponse

address, *paths = sys.argv[1:]
with grpc.insecure_channel(address) as channel:
    ask = channel.unary_unary(
        f"/{SERVICE}/ShouldRateLimit", RateLimitRequest.SerializeToString, RateLimitResponse.FromString
    )
    for path in paths:
        request = RateLimitRequest(domain="edge")
        request.descriptors.add().entries.add(key="path", value=path)
        print(ask(request, wait_for_ready=True).overall_code)
