package local

// FreePorts gives n TCP and UDP ports of the loopback interface that nobody uses, and that it gives to nobody else.
func FreePorts(n int) ([]int, error) { return freePorts(n) }
