package gossip

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"basalt.dev/basalt/api"
)

func keyFile(t *testing.T, keys ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	writeKeys(t, path, keys...)
	return path
}

// writeKeys replaces a file as a mounted Secret is replaced: at once.
func writeKeys(t *testing.T, path string, keys ...[]byte) {
	t.Helper()
	text := "# gossip keys\n"
	for _, k := range keys {
		text += base64.StdEncoding.EncodeToString(k) + "\n"
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// journal keeps what members log at warning level and above.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func TestKeysAreRotatedWhileMembersRun(t *testing.T) {
	old, next := []byte("0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")
	log := &journal{}
	members, files := make([]*member, 3), make([]string, 3)
	for i := range members {
		files[i] = keyFile(t, old)
		members[i] = start(t, api.Incarnation(string(rune('a'+i))), func(o *Options) {
			o.KeyFile, o.ReloadEvery = files[i], 20*time.Millisecond
			o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
	}
	for _, m := range members {
		m.Rejoin(addresses(members...))
	}
	talks, address := 0, ""
	// talk: what each says of itself now arrives at all others.
	talk := func(when string) {
		t.Helper()
		talks++
		address = fmt.Sprint("address-", talks)
		for _, m := range members {
			if err := m.announce(Meta{Name: string(m.name), Address: address}); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range members {
			m.wait("the others' news, "+when, func() bool {
				all := m.Members()
				return len(all) == 2 && all[0].Meta.Address == address && all[1].Meta.Address == address
			})
		}
	}
	talk("at the beginning")
	for _, step := range []struct {
		name string
		keys [][]byte
	}{{"both understood", [][]byte{old, next}}, {"the new one sent", [][]byte{next, old}}, {"the old one gone", [][]byte{next}}} {
		for i, m := range members { // one after another: in between, members differ by one step
			writeKeys(t, files[i], step.keys...)
			m.wait("its keys", func() bool {
				return len(m.ring.GetKeys()) == len(step.keys) && bytes.Equal(m.ring.GetPrimaryKey(), step.keys[0])
			})
			talk(fmt.Sprintf("%s at %s", step.name, m.name))
		}
	}
	if text := log.String(); strings.Contains(text, "ecrypt") { // memberlist: "Decrypt packet failed", "failed to decrypt"
		t.Errorf("something could not be read on the way:\n%s", text)
	}
	// Who has only the old key is a stranger now.
	late := start(t, "late", func(o *Options) { o.KeyFile = keyFile(t, old) })
	if _, err := late.list.Join([]string{members[0].Address()}); err == nil {
		t.Error("the old key still opens")
	}
	// A file that cannot be read changes nothing.
	if err := os.WriteFile(files[0], []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	members[0].wait("the complaint", func() bool { return strings.Contains(log.String(), "cannot read the gossip keys") })
	talk("with a broken file")
}

func TestReadKeys(t *testing.T) {
	k := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), n)) }
	for _, row := range []struct {
		text, says string
		keys       int
	}{
		{k(16), "", 1}, {k(24) + "\n", "", 1}, {"# old\r\n" + k(32) + "\r\n\n" + k(16), "", 2},
		{"", "no key", 0}, {"# " + k(16), "no key", 0}, {"!", "line 1 is not base64", 0}, {k(16) + "\n" + k(15), "line 2: a key of 15 bytes", 0},
		{k(16) + "\n" + k(16), "line 2 repeats", 0},
	} {
		keys, err := parseKeys(row.text)
		if len(keys) != row.keys || (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%q: %d keys, %v; want %d, %q", row.text, len(keys), err, row.keys, row.says)
		}
	}
}

func TestReplaceKeys(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }
	spell := func(keys [][]byte) (out string) {
		for _, k := range keys {
			out += string(k[:1])
		}
		return out
	}
	for _, row := range []struct{ from, to string }{{"a", "a"}, {"a", "ab"}, {"ab", "ba"}, {"ba", "b"}, {"abc", "ac"}, {"abcd", "dbe"}, {"abc", "d"}, {"abc", "cab"}} {
		var from, to [][]byte
		for i := range row.from {
			from = append(from, key(row.from[i]))
		}
		for i := range row.to {
			to = append(to, key(row.to[i]))
		}
		ring, err := memberlist.NewKeyring(from, from[0])
		if err != nil {
			t.Fatal(err)
		}
		seen := ring.GetKeys() // as somebody who reads a packet has it
		before := spell(seen)
		changed, err := replaceKeys(ring, to)
		got := spell(ring.GetKeys())
		if err != nil || changed != (row.from != row.to) || got[0] != row.to[0] || len(got) != len(row.to) || strings.Trim(got, row.to) != "" {
			t.Errorf("%s to %s gave %s, changed %v, %v", row.from, row.to, got, changed, err)
		}
		if after := spell(seen); after != before {
			t.Errorf("%s to %s: a list that is being read went from %s to %s", row.from, row.to, before, after)
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("")
	f.Add(base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")))
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, k := range keys {
			again.WriteString(base64.StdEncoding.EncodeToString(k) + "\n")
		}
		if read, err := parseKeys(again.String()); err != nil || !slices.EqualFunc(read, keys, bytes.Equal) {
			t.Errorf("%d keys became %d: %v", len(keys), len(read), err)
		}
	})
}
