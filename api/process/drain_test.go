package process

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/wire"
)

// A process has another drained only for a user who may do that by the other's own review, and for an operator nobody is asked.
func TestDrainOnBehalfOfUsers(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var drained []string
	good := link.User{Token: "good"}
	in := inspect{process: &Process{}, drain: func(_ context.Context, cancel bool, by string) error { drained = append(drained, by); return nil },
		mayDrain: func(_ context.Context, from api.Incarnation, by link.User) (string, error) {
			if from == "a" && string(by.Named) == "bob" {
				return "bob", nil
			}
			if from != "a" || by.Token != "good" {
				return "", errors.New("this token is not good")
			}
			return "alice", nil
		}}
	make := func(self api.Incarnation, i inspect) *link.Link {
		l, err := link.New(link.Options{Self: self, Listen: "127.0.0.1:0", Key: key, Deliver: func(api.Incarnation, *wire.Envelope) {},
			KeyOf: func(who api.Incarnation) (link.Record, bool) {
				return link.Record{Key: public, Role: certs.NameShard}, who == "a"
			},
			Register: func(r grpc.ServiceRegistrar) { wire.RegisterInspectServer(r, i) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		return l
	}
	nobody := in
	nobody.mayDrain = nil
	a, b, c := make("a", in), make("b", in), make("c", nobody)
	call := func(to api.Incarnation, target *link.Link, user link.User) error {
		conn, err := a.Dial(to, target.Address())
		if to == "" {
			conn, err = link.Dial(target.Address(), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if !user.None() {
			ctx = link.WithUser(ctx, user)
		}
		_, err = wire.NewInspectClient(conn).Drain(ctx, &wire.DrainRequest{})
		return err
	}
	for _, row := range []struct {
		what string
		to   api.Incarnation
		at   *link.Link
		by   link.User
		code codes.Code
	}{
		{"a user", "b", b, good, codes.OK},
		{"a user without a token", "b", b, link.User{Named: []byte("bob")}, codes.OK},
		{"another user", "b", b, link.User{Token: "bad"}, codes.PermissionDenied},
		{"no user", "b", b, link.User{}, codes.PermissionDenied},
		{"where no user may", "c", c, good, codes.PermissionDenied},
		{"an operator", "", b, link.User{}, codes.OK},
	} {
		if err := call(row.to, row.at, row.by); status.Code(err) != row.code {
			t.Errorf("%s: %v, want %s", row.what, err, row.code)
		}
	}
	if !slices.Equal(drained, []string{"alice", "bob", ""}) {
		t.Errorf("drained by %q", drained)
	}
}
