"""How we look: the study, the workers, the database, the tuning run and replay."""
