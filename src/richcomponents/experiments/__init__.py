"""The experiments of the paper: settings x methods x seeds -> rows; rows -> figures, claims, a page."""
