"""In: settings x methods x seeds. Out: measured rows, resumable; of them figures, claims and the page of the paper's
experiments."""
