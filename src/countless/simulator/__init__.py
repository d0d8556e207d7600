"""The fault simulator: clients and a coordinator of production, in a world that fails, from one seed.

    python -m countless.simulator --seed 7

Real are the client with its session, budgets, windows and files, the site server with its registry, the commit
pipeline and the stores. Simulated are the network, the disk's moods, the threads, the clocks and the random numbers.
docs/simulation.md lists the faults and the checks.
"""
