package network_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"basalt.dev/basalt/bench/stage/local/network"
)

// arrives reports whether a packet from one place reaches the other within a limit, sent again and again.
func arrives(t *testing.T, from, to network.Place, within time.Duration) bool {
	t.Helper()
	var server, client net.Conn
	var listener *net.UDPConn
	if err := errors.Join(
		to.In(func() (err error) {
			listener, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(to.Host)})
			return err
		}),
		from.In(func() (err error) {
			client, err = net.DialUDP("udp4", nil, listener.LocalAddr().(*net.UDPAddr))
			return err
		}),
	); err != nil {
		t.Fatal(err)
	}
	server = listener
	defer server.Close()
	defer client.Close()
	buffer := make([]byte, 10)
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if _, err := client.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		_ = server.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := server.Read(buffer); err == nil {
			return true
		}
	}
	return false
}

func TestPathsAreBrokenAndMended(t *testing.T) {
	n, err := network.New()
	if err != nil {
		t.Skip(err)
	}
	defer n.Close()
	a, errA := n.Join("a")
	b, errB := n.Join("b")
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	there, back := network.Path{From: "a", To: "b"}, network.Path{From: "b", To: "a"}
	const patience = time.Minute
	check := func(what string, thereArrives, backArrives bool) {
		t.Helper()
		limit := func(arrives bool) time.Duration {
			if arrives {
				return patience
			}
			return 300 * time.Millisecond
		}
		if got := arrives(t, a, b, limit(thereArrives)); got != thereArrives {
			t.Errorf("%s: a reaches b: %v", what, got)
		}
		if got := arrives(t, b, a, limit(backArrives)); got != backArrives {
			t.Errorf("%s: b reaches a: %v", what, got)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check("at first", true, true)
	must(n.Break(100, there))
	check("one way", false, true)
	must(n.Break(100, there, back))
	must(n.Mend(100, there))
	check("both ways", false, false)
	must(n.Mend(100, there))
	check("the other way", true, false)
	must(n.Mend(100, back))
	must(n.Break(50, there, back))
	check("half is lost", true, true)
}
