"""What was learned: numbers first, then figures of them."""
