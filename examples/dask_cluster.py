"""The same fit on a dask cluster, equal in bits to the fit on this machine. Only sums travel, never rows.

    python examples/dask_cluster.py            # two processes on this machine
    python examples/dask_cluster.py ADDRESS    # a running scheduler, for example tcp://10.0.0.5:8786

On a real cluster the workers need richcomponents installed (the same version), and the data where they can read it, for
example dask.dataframe.read_parquet("s3://bucket/table/").
"""

import sys

import numpy as np

import richcomponents as rc

try:
    import dask.array as da
    from distributed import Client, LocalCluster
except ImportError:
    print("this example needs dask: pip install 'richcomponents[dask]'")
    sys.exit(0)


def main() -> None:
    data = rc.datasets.make_contrastive(100_000, d=4, S2="skewed", random_state=7)
    address = (
        sys.argv[1] if len(sys.argv) > 1 else LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    )
    with Client(address):  # while it is active, fit and Moments.from_source use it
        table = da.from_array(data.X, chunks=(30_000, 8))
        there = rc.ContrastiveRCA(views=4).fit(table)
    here = rc.ContrastiveRCA(views=4).fit(data.X)
    print(f"A agrees in every bit: {np.array_equal(here.A_, there.A_)}")
    print(there.summary())


if __name__ == "__main__":
    main()
