"""What the benchmarks share: measuring, yardsticks, cases, peers, bars."""
