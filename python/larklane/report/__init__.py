"""Tables and the page of `larklane report`."""
