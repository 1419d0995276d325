package gossip

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"basalt.dev/basalt/api"
)

// What others say of themselves is read or left out.
func FuzzMeta(f *testing.F) {
	f.Add([]byte(`{"n":"shard-0","a":"10.0.0.1:7600","e":7,"l":12}`), "inc")
	f.Add([]byte(`{"n":7}`), "")
	f.Fuzz(func(t *testing.T, meta []byte, name string) {
		g := &Gossip{members: map[api.Incarnation]Member{}, wake: make(chan struct{}, 1)}
		g.note(Alive, &memberlist.Node{Name: name, Addr: net.IPv4(10, 0, 0, 1), Port: 1, Meta: meta})
		for _, m := range g.Members() {
			if err := g.setMeta(m.Meta); err == nil && len(g.meta) > memberlist.MetaMaxSize {
				t.Fatalf("%d bytes of metadata", len(g.meta))
			}
		}
		g.note(Dead, &memberlist.Node{Name: name, Meta: meta})
		if len(g.Members()) != 0 {
			t.Fatal("the dead are members")
		}
	})
}

// Packets and streams of strangers end no member.
func FuzzPacket(f *testing.F) {
	f.Add([]byte{0}, false)
	f.Add([]byte("\xf4\x03one\x00\x00"), true)
	m, err := New(Options{Incarnation: "fuzzed", Bind: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = m.stop() })
	f.Fuzz(func(t *testing.T, b []byte, stream bool) {
		network := "udp"
		if stream {
			network = "tcp"
		}
		c, err := net.DialTimeout(network, m.Address(), 5*time.Second)
		if err != nil {
			t.Skip(err)
		}
		defer c.Close()
		_, _ = c.Write(b)
	})
}
