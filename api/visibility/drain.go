package visibility

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// maxShardName bounds the name of a shard in a request, in bytes.
const maxShardName = 253

// namedShards is how many of the shards that there are an error names.
const namedShards = 20

// Drain says how far a shard is with giving its buckets away. It is the answer in JSON; fields may be added.
type Drain struct {
	Shard       string `json:"shard"`
	Incarnation string `json:"incarnation"`
	Draining    bool   `json:"draining"`
	Before      bool   `json:"before,omitempty"` // it was so already when it was asked for
	Buckets     int    `json:"buckets"`          // that it still owns
}

// Line says it in one line.
func (d Drain) Line() string {
	switch {
	case d.Draining && d.Before && d.Buckets == 0:
		return fmt.Sprintf("%s is drained already: it owns no buckets", d.Shard)
	case d.Draining && d.Before:
		return fmt.Sprintf("%s is draining already, and owns %d buckets", d.Shard, d.Buckets)
	case d.Draining:
		return fmt.Sprintf("%s is draining, and owns %d buckets", d.Shard, d.Buckets)
	case d.Before:
		return fmt.Sprintf("%s was not draining; it owns %d buckets", d.Shard, d.Buckets)
	}
	return fmt.Sprintf("%s is not draining any more, and takes its part again; it owns %d buckets", d.Shard, d.Buckets)
}

// Draining says how far a shard is.
func Draining(ctx context.Context, s Store, name string) (Drain, error) {
	record, _, table, err := find(ctx, s, name)
	if err != nil {
		return Drain{}, err
	}
	return drainOf(record, table), nil
}

// Order has a shard drained, or with cancel take its part again. call calls that shard. A shard that does so already is not called, so an
// order can be given again. The last shard that does not drain is refused: nobody could take its buckets.
func Order(ctx context.Context, s Store, name string, cancel bool, call func(context.Context, *wire.ShardRecord) error) (Drain, error) {
	record, others, table, err := find(ctx, s, name)
	switch {
	case err != nil:
		return Drain{}, err
	case record.Draining != cancel:
		d := drainOf(record, table)
		d.Before = true
		return d, nil
	case !cancel && len(others) == 0:
		return Drain{}, problem{http.StatusConflict, fmt.Sprintf("shard %q is the only one: no other could take its buckets", name)}
	case !cancel && !slices.ContainsFunc(others, func(r *wire.ShardRecord) bool { return !r.Draining }):
		return Drain{}, problem{http.StatusConflict, fmt.Sprintf("all other shards are draining, too, so none could take the buckets of %q: %s", name, names(others))}
	}
	if err := call(ctx, record); err != nil {
		if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
			err = problem{http.StatusFailedDependency, fmt.Sprintf("shard %q at %s cannot be reached, or cannot do it now: %s; the others take over the buckets of a dead shard by themselves",
				name, record.Address, words(err))}
		}
		return Drain{}, err
	}
	d := drainOf(record, table)
	d.Draining = !cancel
	return d, nil
}

// find returns a shard that is registered, and the others.
func find(ctx context.Context, s Store, name string) (shard *wire.ShardRecord, others []*wire.ShardRecord, table *api.Table, err error) {
	if err := checkShard(name); err != nil {
		return nil, nil, nil, err
	}
	shards, err := s.Shards(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if table, err = s.Table(ctx); err != nil {
		return nil, nil, nil, err
	}
	for _, r := range shards {
		if r.Name == name {
			shard = r
		} else {
			others = append(others, r)
		}
	}
	if shard != nil {
		return shard, others, table, nil
	}
	if table != nil {
		for _, m := range table.Members {
			if n := table.Owned(m.Incarnation); m.Name == name && n > 0 {
				return nil, nil, nil, problem{http.StatusNotFound, fmt.Sprintf("shard %q is gone: the %d buckets that it owned are being reassigned, as if it had been drained", name, n)}
			}
		}
	}
	return nil, nil, nil, problem{http.StatusNotFound, fmt.Sprintf("there is no shard %q; registered are: %s", name, names(shards))}
}

func drainOf(r *wire.ShardRecord, t *api.Table) Drain {
	return Drain{Shard: r.Name, Incarnation: r.Incarnation, Draining: r.Draining, Buckets: t.Owned(api.Incarnation(r.Incarnation))}
}

// names lists the names of shards for people.
func names(shards []*wire.ShardRecord) string {
	var out []string
	for _, r := range shards {
		out = append(out, r.Name)
	}
	if slices.Sort(out); len(out) == 0 {
		return "none"
	}
	if n := len(out) - namedShards; n > 0 {
		return strings.Join(out[:namedShards], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(out, ", ")
}

// checkShard says why no shard can have a name.
func checkShard(name string) error {
	if name == "" || len(name) > maxShardName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }) {
		return problem{http.StatusBadRequest, fmt.Sprintf("the name of a shard has 1 to %d printable characters", maxShardName)}
	}
	return nil
}

// words are those of an error of a call between processes.
func words(err error) string { return api.Shorten(status.Convert(err).Message(), maxErrorBytes) }

// Final reports whether another way to ask would lead to the same answer.
func Final(err error) bool {
	var p problem
	return errors.As(err, &p) && p.code < http.StatusInternalServerError
}
