"""The contents of each page: the explorer's answers, and charts and lists calculated from them."""
