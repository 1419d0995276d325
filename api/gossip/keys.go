package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxKeys bounds a key file: a packet that none fits is tried against each.
const maxKeys = 8

// ReadKeys reads a key file: one base64 AES key of 16, 24 or 32 bytes a line. Members send with the first and understand all.
// A line that begins with # is a comment.
//
// To rotate without a split: put the new key in the second line everywhere, then in the first, then take the old one out;
// after each step wait until every member has read its file.
func ReadKeys(path string) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

func parseKeys(text string) ([][]byte, error) {
	var keys [][]byte
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not base64: %w", i+1, err)
		}
		if err := memberlist.ValidateKey(key); err != nil {
			return nil, fmt.Errorf("line %d: a key of %d bytes, 16, 24 or 32 are possible", i+1, len(key))
		}
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			return nil, fmt.Errorf("line %d repeats a key", i+1)
		}
		keys = append(keys, key)
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("no key in it")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("%d keys, at most %d are possible", len(keys), maxKeys)
	}
	return keys, nil
}

// fingerprint tells keys apart in logs.
func fingerprint(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// followKeys reads the key file again now and then. One that cannot be read changes nothing.
func (g *Gossip) followKeys() {
	tick := time.NewTicker(g.opts.ReloadEvery)
	defer tick.Stop()
	failed := ""
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-tick.C:
		}
		keys, err := ReadKeys(g.opts.KeyFile)
		if err != nil {
			if failed != err.Error() {
				failed = err.Error()
				g.opts.Logger.Error("cannot read the gossip keys, keeping the previous ones", "error", err)
			}
			continue
		}
		failed = ""
		changed, err := replaceKeys(g.ring, keys)
		if err != nil {
			g.opts.Logger.Error("cannot replace the gossip keys", "error", err)
		} else if changed {
			g.opts.Logger.Info("gossip keys replaced", "keys", len(keys), "first", fingerprint(keys[0]))
		}
	}
}

// replaceKeys makes a ring hold just these, the first as the one to send with.
func replaceKeys(ring *memberlist.Keyring, keys [][]byte) (changed bool, err error) {
	among := func(all [][]byte, key []byte) bool {
		return slices.ContainsFunc(all, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	add := func() error {
		for _, k := range keys {
			if err := ring.AddKey(k); err != nil {
				return err
			}
		}
		return ring.UseKey(keys[0])
	}
	old := ring.GetKeys()
	changed = len(old) != len(keys) || slices.ContainsFunc(keys, func(k []byte) bool { return !among(old, k) }) || !bytes.Equal(ring.GetPrimaryKey(), keys[0])
	if err := add(); err != nil || !changed {
		return changed, err
	}
	// To remove any key but the last, memberlist moves those behind it, in a list that packets are being read with. So all
	// from the end go until nothing unwanted is left, and what is wanted of them comes back.
	for now := ring.GetKeys(); slices.ContainsFunc(now, func(k []byte) bool { return !among(keys, k) }); now = ring.GetKeys() {
		if err := ring.RemoveKey(now[len(now)-1]); err != nil {
			return changed, err
		}
	}
	return changed, add()
}
