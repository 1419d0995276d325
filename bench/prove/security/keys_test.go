package security

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/certs/certstest"
)

// secret is a folder as Kubernetes mounts a Secret: files that are replaced under the readers.
type secret struct {
	t   *testing.T
	dir string
}

func newSecret(t *testing.T) *secret { return &secret{t, t.TempDir()} }

func (s *secret) file(name string) string { return filepath.Join(s.dir, name) }

func (s *secret) put(name string, data []byte) {
	s.t.Helper()
	next := s.file("." + name)
	if err := os.WriteFile(next, data, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(next, s.file(name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *secret) putLeaf(a *certstest.CA, name string, until time.Time) {
	s.t.Helper()
	names := []string{name}
	if name == certs.NameProcess { // one for shards, coordinator and operator: what roles may do, api/link tests
		names = append(names, certs.NameShard, certs.NameCoordinator, certs.NameOperator)
	}
	cert, key := a.Leaf(until, names...)
	s.put("tls.crt", cert)
	s.put("tls.key", key)
}
