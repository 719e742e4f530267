"""Measure speed, memory and quality, beside other toolkits. Run from the root of the repository; not installed."""
