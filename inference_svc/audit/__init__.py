"""The audit log: what one forward let each row see, as a line that can be checked again later."""
