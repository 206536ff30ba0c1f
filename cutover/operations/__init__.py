"""What a person does to a running system beside runs: shown first, then done; by the command line and by Airflow."""
