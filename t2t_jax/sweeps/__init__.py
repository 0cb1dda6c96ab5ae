"""Many runs that make one table: its rows, how they are run, what is known about them."""
