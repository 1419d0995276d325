package hostile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Attack is one thing that a tenant may do.
type Attack struct {
	Name  string
	About string
	// Right is what the tenant needs beside the ClusterRole edit, for an admin may have granted it: "group/resource" that it
	// may patch; empty for nothing.
	Right string
	// Controllers says that the attack does nothing without kube-controller-manager.
	Controllers bool
	// OwnNamespace says that the attack runs in a namespace of its own, which is deleted in the middle of it.
	OwnNamespace bool
	// Bypass says that the attack sets spec.nodeName: what runs in the namespace was not placed by Basalt alone.
	Bypass bool
	// InPart says that the attack removes bound pods of its own gangs, which nothing makes again: such a gang stays in part.
	InPart bool
	// Says are words of which the condition of each pod that the attack leaves waiting must have at least one.
	Says []string
	// Least is the shortest time in which the attack can show its effect; any if 0.
	Least time.Duration

	run func(context.Context, *strike)
}

// Attacks returns all attacks, sorted by name.
func Attacks() []Attack {
	all := slices.Concat(sizes, labels, floods, edits, evicting, others)
	slices.SortFunc(all, func(a, b Attack) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Choose returns the attacks with the given names, all of them for none.
func Choose(names []string) (chosen []Attack, err error) {
	all := Attacks()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		i, found := slices.BinarySearchFunc(all, name, func(a Attack, name string) int { return cmp.Compare(a.Name, name) })
		if !found {
			return nil, fmt.Errorf("there is no attack %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
