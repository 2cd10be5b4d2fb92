"""Drills on real processes: what is killed, flushed and taken away while a job runs."""
