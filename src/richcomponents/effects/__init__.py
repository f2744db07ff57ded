"""In: tests, negative controls, instruments and exposures. Out: effects of the exposures under hidden confounding, with errors,
sets, tests and a verdict."""
