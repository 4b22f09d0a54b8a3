"""What `sponson diff` says, held against policies that are really assembled one after the other."""
