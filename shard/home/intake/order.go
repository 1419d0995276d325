package intake

import (
	"time"

	"basalt.dev/basalt/api/expression"
	"basalt.dev/basalt/api/v1beta1"
)

// The order that Queues give to gangs of equal priority (spec.order): one integer for each gang, the smaller first.
// It is a function of objects alone, so that each home finds the same.

// Order is what a Queue says of the order of its gangs. Nil says nothing.
type Order struct {
	uid     string
	program *expression.Program // nil if it does not compile
	problem string              // why it does not
}

// MaxOrderWords is how many bytes of labels an expression sees of a gang, and how many of annotations, keys included.
const MaxOrderWords = 4096

// MaxOrderCost is what an evaluation may cost.
const MaxOrderCost = expression.MaxCost

// orderLanguage returns what spec.order may say. It is made when the first Queue says something.
func (o *Objects) orderLanguage() *expression.Language {
	if o.orders.language == nil {
		o.orders.language = expression.New(
			expression.Variable{Name: "labels", Type: expression.TextsType},
			expression.Variable{Name: "annotations", Type: expression.TextsType},
			expression.Variable{Name: "priority", Type: expression.IntType},
			expression.Variable{Name: "created", Type: expression.TimeType})
	}
	return o.orders.language
}

// orders are what Queues say that say something.
type orders struct {
	language *expression.Language
	of       map[string]*Order
}

// SeeOrder takes note of what a Queue says, nil for one that is gone, and reports whether it said something else
// before.
func (o *Objects) SeeOrder(name, uid string, spec *v1beta1.QueueSpec) bool {
	was := o.orders.of[name]
	if spec == nil && (was == nil || was.uid != uid) {
		return false // of an earlier one of this name
	}
	if spec == nil || spec.Order == "" {
		delete(o.orders.of, name)
		return was != nil
	}
	if was != nil && was.uid == uid && was.program != nil && was.program.Text() == spec.Order {
		return false
	}
	now := &Order{uid: uid}
	program, err := o.orderLanguage().Compile(spec.Order, expression.IntType)
	if err != nil {
		now.problem = "spec.order: " + err.Error()
	} else {
		now.program = program
	}
	if was != nil && was.uid == uid && was.program == nil && now.program == nil && was.problem == now.problem {
		return false
	}
	if o.orders.of == nil {
		o.orders.of = map[string]*Order{}
	}
	o.orders.of[name] = now
	return true
}

// Order returns what a Queue says of the order of its gangs, nil for nothing. It is valid or says why it is not.
func (o *Objects) Order(queue string) *Order { return o.orders.of[queue] }

// Of returns what an order that is valid makes of a gang, and what that cost, in the units of MaxOrderCost.
func (o *Order) Of(labels, annotations map[string]string, priority int64, created time.Time) (
	place int64, cost uint64, err error) {
	return o.program.Int(expression.Texts(expression.Bounded(labels, MaxOrderWords)),
		expression.Texts(expression.Bounded(annotations, MaxOrderWords)), expression.Int(priority), expression.Time(created))
}

// Valid reports whether gangs have a place by it.
func (o *Order) Valid() bool { return o != nil && o.program != nil }

// Problem says why it is not valid, "" if it says nothing or is.
func (o *Order) Problem() string {
	if o == nil {
		return ""
	}
	return o.problem
}
