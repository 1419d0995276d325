package main

import (
	"net"
	"strings"
	"testing"
)

// Flags are taken, or the one that is wrong is named.
func FuzzFlags(f *testing.F) {
	f.Add("shard-0", ":7600", ":7601", "127.0.0.1:7602", "10.0.0.1", "http://a:2379, http://b:2379", "", "", "")
	f.Add("", "nonsense", ":", "", "me", ",", "/ca", "", "/key")
	f.Fuzz(func(t *testing.T, name, listen, gossip, metrics, advertise, etcd, ca, cert, key string) {
		c := &common{name: name, listen: listen, gossip: gossip, metrics: metrics, advertise: advertise, etcd: etcd, tlsCA: ca, tlsCert: cert, tlsKey: key}
		if err := c.check(); err != nil {
			if !strings.HasPrefix(err.Error(), "--") {
				t.Fatalf("%v names no flag", err)
			}
			return
		}
		if _, err := c.endpoints(); err != nil && !strings.HasPrefix(err.Error(), "--etcd") {
			t.Fatal(err)
		}
		if at, err := c.address(listen); err == nil {
			if _, _, err := net.SplitHostPort(at); err != nil {
				t.Fatalf("%q became %q: %v", listen, at, err)
			}
		}
	})
}
