// Package wire is the protobuf form of messages between processes and of stored records. It is generated from basalt.proto, which
// is its documentation. It also converts from and to the types of package api.
package wire

import (
	"encoding/binary"
	"fmt"

	"basalt.dev/basalt/api"
)

// FromResources makes the message form of a vector.
func FromResources(r api.Resources) []*Amount {
	if len(r) == 0 {
		return nil
	}
	block := make([]Amount, len(r))
	out := make([]*Amount, len(r))
	for i, a := range r {
		block[i].Resource, block[i].Value = a.Resource, a.Value
		out[i] = &block[i]
	}
	return out
}

// ToResources reads a vector; unsorted or repeated names, which only a broken sender makes, are an error.
func ToResources(in []*Amount) (api.Resources, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(api.Resources, len(in))
	for i, a := range in {
		if i > 0 && in[i-1].GetResource() >= a.GetResource() {
			return nil, fmt.Errorf("amounts out of order: %q before %q", in[i-1].GetResource(), a.GetResource())
		}
		out[i] = api.Amount{Resource: a.GetResource(), Value: a.GetValue()}
	}
	return out, nil
}

// FromRank makes the message form of a rank.
func FromRank(r api.Rank) *Rank {
	return &Rank{Priority: r.Priority, Order: r.Order, GangUid: r.Gang}
}

// ToRank reads a rank.
func ToRank(r *Rank) api.Rank {
	return api.Rank{Priority: r.GetPriority(), Order: r.GetOrder(), Gang: r.GetGangUid()}
}

// FromTable makes the record of a table; its revision is the store's to give.
func FromTable(t *api.Table) *TableRecord {
	r := &TableRecord{Epoch: uint64(t.Epoch), Owners: make([]byte, 2*api.Buckets), Changed: make([]uint64, api.Buckets), Refilling: t.Refilling}
	for _, m := range t.Members {
		r.Incarnations = append(r.Incarnations, string(m.Incarnation))
		r.Names = append(r.Names, m.Name)
	}
	for b := range t.Owners {
		binary.LittleEndian.PutUint16(r.Owners[2*b:], t.Owners[b])
		r.Changed[b] = uint64(t.Changed[b])
	}
	return r
}

// ToTable reads the record of a table found at a revision.
func ToTable(r *TableRecord, revision int64) (*api.Table, error) {
	if len(r.Owners) != 2*api.Buckets || len(r.Changed) != api.Buckets || len(r.Names) != len(r.Incarnations) {
		return nil, fmt.Errorf("table epoch %d: %d bytes of owners, %d changes, %d names for %d incarnations", r.Epoch, len(r.Owners), len(r.Changed), len(r.Names), len(r.Incarnations))
	}
	t := &api.Table{Epoch: api.Epoch(r.Epoch), Revision: revision, Refilling: r.Refilling}
	for i := range r.Incarnations {
		t.Members = append(t.Members, api.Member{Incarnation: api.Incarnation(r.Incarnations[i]), Name: r.Names[i]})
	}
	for b := range t.Owners {
		t.Owners[b] = binary.LittleEndian.Uint16(r.Owners[2*b:])
		t.Changed[b] = api.Epoch(r.Changed[b])
	}
	return t, t.Validate()
}

// Title returns the gang's name as users know it.
func (x *GangRef) Title() string {
	return x.GetNamespace() + "/" + api.GroupTitle(api.GroupKind(x.GetKind()), x.GetName())
}

// FromClass says a class.
func FromClass(c *api.Class) *PodClass {
	out := &PodClass{Requests: FromResources(c.Requests), Attach: FromResources(c.Attach), Constraints: c.Constraints, Repels: c.Repels, Joins: c.Joins, Wishes: c.Wishes, Leanings: c.Leanings}
	if c.Labelled {
		out.Labels = &Labels{}
		if c.Labels != nil {
			out.Labels.Labels = c.Labels.Of
		}
	}
	return out
}

// ToClass reads one.
func ToClass(m *PodClass) (*api.Class, error) {
	requests, err := ToResources(m.GetRequests())
	if err != nil {
		return nil, err
	}
	attach, err := ToResources(m.GetAttach())
	if err != nil {
		return nil, err
	}
	return api.MakeClass(api.Class{Requests: requests, Attach: attach, Constraints: m.GetConstraints(), Repels: m.GetRepels(), Joins: m.GetJoins(), Wishes: m.GetWishes(), Leanings: m.GetLeanings(),
		Labels: api.NewLabels(m.GetLabels().GetLabels()), Labelled: m.GetLabels() != nil}), nil
}

// FromDemand writes what an heir has to know of a class.
func FromDemand(c *api.Class) *Demand {
	return &Demand{Amounts: FromResources(c.Requests), Attach: FromResources(c.Attach), Constraints: c.Constraints, Repels: c.Repels}
}

// ToDemand reads it, as parts of a class.
func ToDemand(m *Demand) (api.Class, error) {
	requests, err := ToResources(m.GetAmounts())
	if err != nil {
		return api.Class{}, err
	}
	attach, err := ToResources(m.GetAttach())
	return api.Class{Requests: requests, Attach: attach, Constraints: m.GetConstraints(), Repels: m.GetRepels()}, err
}
