"""The tests of `SaverContract`, one module per subject."""
