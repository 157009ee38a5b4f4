"""Workers: disposable processes that build and measure candidates, and what runs them on one machine or many."""
