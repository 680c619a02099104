"""What it costs to remember: ours and the peers', side by side in one run.

`python -m benchmarks` asks every question in `questions/`, one a file, and holds the answers against the bounds
written there. `plan` says how large and how often, `timing` and `memory` measure, `rows` judges, `results` keeps the
answers, `table` and `plots` show them. `instructions` counts instructions, `soak` lets traffic run for long.
"""
