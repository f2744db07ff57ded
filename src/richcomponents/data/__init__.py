"""Tables come in (arrays, data frames, files, streams, dask: one door, `rows.open_source`); named columns go out: blocks of
numbers to sum, or whole columns, text and all (`Rows`), and what `views=` and `covariates=` mean for them (`Views`)."""
