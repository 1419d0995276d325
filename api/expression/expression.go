// Package expression compiles and evaluates what users write in CEL, the expression language of Kubernetes' admission
// policies: over a few declared variables, to one integer or one boolean.
//
// It decides what an expression may be: of how many bytes, of which type, with which functions, and how costly. What
// does not compile is an Error that names the position. What compiles is evaluated within MaxCost, over values that are
// bounded, too: of a map the first MaxEntries keys in order, and of these no value of more than MaxValue bytes. What is
// beyond is absent.
//
// It refuses what would make the answer depend on anything but the text and the values, so that all processes find the
// same:
//   - the macros map and filter, which would show the random order of a map's keys;
//   - time zones by name, which are files of the machine. Times are in UTC;
//   - the time of the evaluation: there is no function for it.
//
// And it refuses patterns of matches that are no literals, as the cost of compiling those is not bounded by their
// length.
//
// It starts nothing and reads nothing: cores may import it.
package expression

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"

	"basalt.dev/basalt/api"
)

// Bounds of an expression and of what it sees.
const (
	MaxText    = 1024  // bytes of an expression
	MaxCost    = 10000 // of one evaluation, in the units of Kubernetes' cost of CEL
	MaxEntries = 128   // of a map or a list
	MaxValue   = 256   // bytes of a value of a map
	maxNesting = 32    // of brackets and operators
	maxWords   = 256   // bytes of an error's message
)

// Type is the type of a variable, or of what an expression results in.
type Type struct{ of *cel.Type }

// The types of variables.
var (
	IntType     = Type{cel.IntType}
	BoolType    = Type{cel.BoolType}
	TextType    = Type{cel.StringType}
	TimeType    = Type{cel.TimestampType}
	TextsType   = Type{cel.MapType(cel.StringType, cel.StringType)}               // such as labels
	AmountsType = Type{cel.MapType(cel.StringType, cel.IntType)}                  // such as requests
	ListType    = Type{cel.ListType(cel.MapType(cel.StringType, cel.StringType))} // such as taints
)

// Variable is what an expression may name.
type Variable struct {
	Name string
	Type Type
}

// Language is what expressions of one kind may say. It takes about a millisecond to make.
type Language struct {
	variables []Variable
	env       *cel.Env
}

// New returns the language that has some variables. It panics if they cannot be declared: they are the program's.
func New(variables ...Variable) *Language {
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(env.NewLibrarySubset().
			AddExcludedMacros(operators.Map, operators.Filter).
			AddExcludedFunctions(zones...))),
		cel.OptionalTypes(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(MaxText),
		cel.ParserRecursionLimit(maxNesting),
		cel.ParserErrorRecoveryLimit(1),
	}
	for _, v := range variables {
		options = append(options, cel.Variable(v.Name, v.Type.of))
	}
	e, err := cel.NewCustomEnv(options...)
	if err != nil {
		panic(fmt.Sprintf("expression: %v", err))
	}
	return &Language{variables: variables, env: e}
}

// zones are the overloads that take a time zone.
var zones = []*env.Function{
	without(overloads.TimeGetFullYear, overloads.TimestampToYearWithTz),
	without(overloads.TimeGetMonth, overloads.TimestampToMonthWithTz),
	without(overloads.TimeGetDayOfYear, overloads.TimestampToDayOfYearWithTz),
	without(overloads.TimeGetDayOfMonth, overloads.TimestampToDayOfMonthZeroBasedWithTz),
	without(overloads.TimeGetDate, overloads.TimestampToDayOfMonthOneBasedWithTz),
	without(overloads.TimeGetDayOfWeek, overloads.TimestampToDayOfWeekWithTz),
	without(overloads.TimeGetHours, overloads.TimestampToHoursWithTz),
	without(overloads.TimeGetMinutes, overloads.TimestampToMinutesWithTz),
	without(overloads.TimeGetSeconds, overloads.TimestampToSecondsWithTz),
	without(overloads.TimeGetMilliseconds, overloads.TimestampToMillisecondsWithTz),
}

func without(function, overload string) *env.Function {
	return env.NewFunction(function, env.NewOverload(overload, nil, nil))
}

// Program is an expression that compiles.
type Program struct {
	text      string
	variables []Variable
	program   cel.Program
	source    *ast.SourceInfo
}

// Text returns what was compiled.
func (p *Program) Text() string { return p.text }

// Error says what is wrong with an expression, and where.
type Error struct {
	Line, Column int // from 1, 0 where it is the whole
	Message      string
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Message
	case e.Line == 1:
		return fmt.Sprintf("column %d: %s", e.Column, e.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Compile returns the program of an expression that results in a type. An error is an *Error.
func (l *Language) Compile(text string, result Type) (*Program, error) {
	if strings.TrimSpace(text) == "" {
		return nil, &Error{Message: "the expression is empty"}
	}
	if len(text) > MaxText {
		return nil, &Error{Message: fmt.Sprintf("the expression has %d bytes, the limit is %d", len(text), MaxText)}
	}
	checked, issues := l.env.Compile(text)
	if errs := issues.Errors(); len(errs) > 0 {
		first := errs[0]
		for _, e := range errs[1:] {
			if before(e.Location, first.Location) {
				first = e
			}
		}
		return nil, at(first.Location, first.Message)
	}
	tree := checked.NativeRep()
	if is := checked.OutputType(); !is.IsExactType(result.of) {
		return nil, at(tree.SourceInfo().GetStartLocation(tree.Expr().ID()),
			fmt.Sprintf("it is of type %s, and has to be of type %s", typeName(is), typeName(result.of)))
	}
	if pattern := openPattern(tree); pattern != nil {
		return nil, at(tree.SourceInfo().GetStartLocation(pattern.ID()), "the pattern of matches has to be a literal")
	}
	cost, err := l.env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, &Error{Message: words(err.Error())}
	}
	if cost.Max > MaxCost {
		return nil, &Error{Message: fmt.Sprintf("it is too costly: it may cost %d, the limit is %d", cost.Max, MaxCost)}
	}
	program, err := l.env.Program(checked, cel.CostLimit(MaxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, &Error{Message: words(err.Error())}
	}
	return &Program{text: text, variables: l.variables, program: program, source: tree.SourceInfo()}, nil
}

// openPattern returns a pattern of matches that is no literal, nil if there is none.
func openPattern(tree *ast.AST) (open ast.Expr) {
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != overloads.Matches {
			return
		}
		args := e.AsCall().Args()
		if pattern := args[len(args)-1]; pattern.Kind() != ast.LiteralKind && open == nil {
			open = pattern
		}
	}))
	return open
}

// Int evaluates an expression of IntType over the values of the language's variables, in their order. It also returns
// what that cost, in the units of MaxCost.
func (p *Program) Int(values ...Value) (value int64, cost uint64, err error) {
	out, details, err := p.program.Eval(p.bind(values))
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	if i, is := out.(types.Int); is && err == nil {
		return int64(i), cost, nil
	}
	return 0, cost, p.failed(err)
}

// Bool evaluates an expression of BoolType.
func (p *Program) Bool(values ...Value) (bool, error) {
	out, _, err := p.program.Eval(p.bind(values))
	if b, is := out.(types.Bool); is && err == nil {
		return bool(b), nil
	}
	return false, p.failed(err)
}

// failed says why an evaluation has no result.
func (p *Program) failed(err error) error {
	var e *types.Err
	switch {
	case err == nil:
		return &Error{Message: "it has no value"}
	case errors.As(err, &e) && e.NodeID() != 0:
		return at(p.source.GetStartLocation(e.NodeID()), e.Error())
	case strings.Contains(err.Error(), "cost limit exceeded"):
		return &Error{Message: fmt.Sprintf("it is too costly, the limit is %d", MaxCost)}
	}
	return &Error{Message: words(err.Error())}
}

func at(where common.Location, message string) *Error {
	if where == nil || where.Line() < 1 {
		return &Error{Message: words(message)}
	}
	return &Error{Line: where.Line(), Column: where.Column() + 1, Message: words(message)}
}

func before(a, b common.Location) bool {
	return a.Line() < b.Line() || a.Line() == b.Line() && a.Column() < b.Column()
}

// words makes one bounded line of a message of the library.
func words(message string) string {
	message = strings.Replace(strings.Join(strings.Fields(message), " "), " (in container '')", "", 1)
	return api.Shorten(message, maxWords)
}

// typeName is what users call a type.
func typeName(t *cel.Type) string {
	if t.IsExactType(cel.TimestampType) {
		return "timestamp"
	}
	return cel.FormatCELType(t)
}
