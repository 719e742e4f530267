"""Run the other toolkits that the benchmarks measure us against."""
