"""Measure speed, memory and quality, beside other toolkits: `benchmark` of each module returns tables in Markdown."""
