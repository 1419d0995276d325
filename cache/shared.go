package cache

import (
	"strings"
	"unsafe"
)

// shared keeps rows of words, equal ones once, by number. What nodes have and what constraints say of them is the same for
// many nodes, so a slot has a number of four bytes, and the row is seldom far away. Row 0 is zero.
type shared struct {
	words int
	rows  []uint64 // row i is at i*words
	users []int32  // of each row; those of row 0 are not counted
	byRow map[string]int32
	spare []int32 // numbers
}

// reset makes it empty, for rows of so many words.
func (t *shared) reset(words int) {
	*t = shared{words: words, rows: make([]uint64, words), users: []int32{0}, byRow: map[string]int32{}}
}

// at returns a row, for reading, until the next swap.
func (t *shared) at(number int32) []uint64 {
	return t.rows[int(number)*t.words : (int(number)+1)*t.words]
}

// swap returns the number of a row for one who had another: 0 if none.
func (t *shared) swap(old int32, row []uint64) int32 {
	number := t.find(row)
	t.pass(old, number)
	return number
}

// pass moves one user from a row to another.
func (t *shared) pass(old, number int32) {
	t.users[number]++
	t.users[old]--
	if old != 0 && t.users[old] == 0 {
		delete(t.byRow, keyOfRow(t.at(old)))
		t.spare = append(t.spare, old)
	}
	t.users[0] = 0
}

// find returns the number of a row, and writes it down if it is new.
func (t *shared) find(row []uint64) int32 {
	if number, ok := t.byRow[keyOfRow(row)]; ok {
		return number
	}
	some := uint64(0)
	for _, w := range row {
		some |= w
	}
	if some == 0 {
		return 0
	}
	number := int32(len(t.users))
	if k := len(t.spare) - 1; k >= 0 {
		number, t.spare = t.spare[k], t.spare[:k]
		copy(t.at(number), row)
	} else {
		t.rows, t.users = append(t.rows, row...), append(t.users, 0)
	}
	t.byRow[strings.Clone(keyOfRow(row))] = number
	return number
}

// keyOfRow is valid while the row is not written.
func keyOfRow(row []uint64) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 8*len(row))
}
