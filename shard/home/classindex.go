package home

import (
	"slices"

	"basalt.dev/basalt/api"
)

// classIndex numbers distinct classes in the order in which they come. Few are compared one by one: most gangs have
// one. Many are looked up by the hash that they carry, for their keys are up to 32 KiB long and each pod may have
// another one; classes with the same hash are told apart by their keys.
type classIndex struct {
	list  []*api.Class
	first map[uint64]int32 // hash -> number of the last class that has it; nil while there are few
	next  []int32          // number -> number of another class with the same hash, -1 for none
}

// fewClasses is how many classes are compared one by one.
const fewClasses = 8

// number returns the number of a class, and whether it is new.
func (x *classIndex) number(class *api.Class) (n int, fresh bool) {
	if k := len(x.list); k > 0 && x.list[k-1] == class { // pods of one class come in a row
		return k - 1, false
	}
	if n := x.find(class); n >= 0 {
		return n, false
	}
	x.list = append(x.list, class)
	if len(x.list) > fewClasses {
		if x.first == nil {
			x.first = map[uint64]int32{}
		}
		for n := len(x.next); n < len(x.list); n++ {
			x.insert(n, x.list[n].Hash())
		}
	}
	return len(x.list) - 1, true
}

// insert makes a class known by a hash.
func (x *classIndex) insert(n int, hash uint64) {
	before, known := x.first[hash]
	if !known {
		before = -1
	}
	x.next = append(x.next, before)
	x.first[hash] = int32(n)
}

// find returns the number of a class, -1 if it has none.
func (x *classIndex) find(class *api.Class) int {
	if x.first == nil {
		return slices.IndexFunc(x.list, func(known *api.Class) bool { return known == class || known.Key == class.Key })
	}
	return x.findBy(class.Hash(), class)
}

func (x *classIndex) findBy(hash uint64, class *api.Class) int {
	n, known := x.first[hash]
	if !known {
		return -1
	}
	for n >= 0 && x.list[n] != class && x.list[n].Key != class.Key {
		n = x.next[n]
	}
	return int(n)
}

// bytes returns how long the keys of the classes are together.
func (x *classIndex) bytes() (n int) {
	for _, class := range x.list {
		n += len(class.Key)
	}
	return n
}
