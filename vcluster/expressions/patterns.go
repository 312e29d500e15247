// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"
	"math"
	"slices"
	"strings"
	_ "unsafe" // for go:linkname

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/schemas"
)

// baseOptions are what all of upstream's CEL environments are made with.
//
//go:linkname baseOptions k8s.io/apiserver/pkg/cel/environment.baseOpts
var baseOptions []environment.VersionedOptions //nolint:gochecknoglobals // It is upstream's.

// BoundPatterns makes the CEL environments of the process refuse large regular expressions, and count what they cost. Call it
// once, before an API server makes an environment.
func BoundPatterns() {
	baseOptions = append(baseOptions, options())
}

// boundedPattern is a function that returns its argument, a pattern that is not too large. Nobody can write its name.
const (
	boundedPattern         = "@bounded_pattern"
	boundedPatternOverload = "bounded_pattern_string"
)

// Functions that take a pattern, besides those of cel-go.
const (
	findString      = "string_find_string"
	findAllString   = "string_find_all_string"
	findAllStringIn = "string_find_all_string_int"
)

// options bound patterns that are literals as they are parsed, before anything compiles them, and others as they are
// evaluated. A macro that stands in for each function puts the check around its pattern.
func options() environment.VersionedOptions {
	p, anything := &patterns{known: lru.New(knownPatterns)}, cel.TypeParamType("T")
	return environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			// They take any value, and the call that is made with it refuses what it does not take.
			cel.Function(boundedPattern, cel.Overload(boundedPatternOverload, []*cel.Type{anything}, anything, cel.UnaryBinding(checkValue))),
			cel.Function(boundedText, cel.Overload(boundedTextOverload, []*cel.Type{anything, cel.IntType, cel.IntType}, anything,
				cel.FunctionBinding(checkText))),
			cel.Macros(
				cel.GlobalMacro(overloads.Matches, 2, checkArguments(overloads.Matches)),
				cel.ReceiverMacro(overloads.Matches, 1, checkArguments(overloads.Matches)),
				cel.ReceiverMacro("find", 1, checkArguments("find")),
				cel.ReceiverMacro(findAll, 1, checkArguments(findAll)),
				cel.ReceiverMacro(findAll, 2, checkArguments(findAll)),
			),
			cel.CostEstimatorOptions(
				checker.OverloadCostEstimate(boundedPatternOverload, estimateCheck),
				checker.OverloadCostEstimate(boundedTextOverload, estimateCheck),
			),
			boundCalls,
			boundChains,
		},
		ProgramOptions: append(countValues(), boundMatches(), cel.CostTrackerOptions(
			interpreter.OverloadCostTracker(boundedPatternOverload, p.costOfCheck),
			interpreter.OverloadCostTracker(boundedTextOverload, func([]ref.Val, ref.Val) *uint64 { return new(uint64) }),
			interpreter.OverloadCostTracker(overloads.Matches, unlessRefused(p.costOfMatch)),
			interpreter.OverloadCostTracker(overloads.MatchesString, unlessRefused(p.costOfMatch)),
			interpreter.OverloadCostTracker(findString, unlessRefused(p.costOfMatch)),
			interpreter.OverloadCostTracker(findAllString, unlessRefused(p.costOfFindAll)),
			interpreter.OverloadCostTracker(findAllStringIn, unlessRefused(p.costOfFindAll)),
		)),
	}
}

// check returns why a pattern is refused.
func check(pattern string) error {
	if err := bounds.PatternBytes.Check(int64(len(pattern))); err != nil {
		return err
	}
	return bounds.PatternInstructions.Check(int64(schemas.Instructions(pattern)))
}

// checkArguments expands calls of a function that matches a text, its receiver or first argument, with a pattern, the next one:
// it checks a pattern that is a literal, and has the text checked as it is evaluated; or it has the pattern checked then.
func checkArguments(function string) parser.MacroExpander {
	return func(help parser.ExprHelper, target ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		args = slices.Clone(args)
		text, pattern := &target, &args[0]
		if target == nil {
			text, pattern = &args[0], &args[1]
		}
		if (*pattern).Kind() != ast.LiteralKind {
			*pattern = help.NewCall(boundedPattern, *pattern)
		} else {
			literal, ok := (*pattern).AsLiteral().(types.String)
			if !ok { // the type check refuses it
				return nil, nil
			}
			if err := check(string(literal)); err != nil {
				return nil, help.NewError((*pattern).ID(), "regular expression: "+err.Error())
			}
			*text = help.NewCall(boundedText, *text,
				help.NewLiteral(types.Int(schemas.Instructions(string(literal)))), help.NewLiteral(matches(function, args)))
		}
		if target == nil {
			return help.NewCall(function, args...), nil
		}
		return help.NewMemberCall(function, target, args...), nil
	}
}

// matches is how many matches a call asks for, as far as it is a literal.
func matches(function string, args []ast.Expr) types.Int {
	if function != findAll {
		return 1
	}
	if len(args) == 2 && args[1].Kind() == ast.LiteralKind {
		if n, ok := args[1].AsLiteral().(types.Int); ok {
			return n
		}
	}
	return allMatches
}

func checkValue(v ref.Val) ref.Val {
	pattern, ok := v.(types.String)
	if !ok { // the call refuses it
		return v
	}
	if err := check(string(pattern)); err != nil {
		return types.WrapErr(refusal{fmt.Errorf("regular expression: %w", err)})
	}
	return v
}

// estimateCheck says that a check costs little, and that its result is as long as its first argument: definitions whose rules may
// cost much are refused, and this must not make others of them.
func estimateCheck(estimator checker.CostEstimator, _ *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	estimate := &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(0)}
	if len(args) > 0 {
		if estimate.ResultSize = args[0].ComputedSize(); estimate.ResultSize == nil {
			estimate.ResultSize = estimator.EstimateSize(args[0])
		}
	}
	return estimate
}

const (
	// knownPatterns is how many patterns the process keeps the cost of.
	knownPatterns = 1000
	// costlyInstructions is how many instructions cost one. Upstream takes a unit of cost for about 100 ns. To match a
	// character against all instructions takes 8 ns for each; but few patterns have their programs wholly in use. Patterns
	// cost less here than the worst of them takes, by a factor of eight, so that usual ones cost what they do upstream.
	costlyInstructions = 8
)

// patterns knows what patterns cost. It is safe for concurrent use.
type patterns struct{ known *lru.Cache }

// weight is how many characters upstream would take a pattern's program for. It is zero for those without repetitions, whose
// program is about as long as the pattern.
func (p *patterns) weight(pattern string) uint64 {
	if !strings.Contains(pattern, "{") || len(pattern) > bounds.PatternBytes.Max() {
		return 0
	}
	if known, ok := p.known.Get(pattern); ok {
		if n, ok := known.(uint64); ok {
			return n
		}
	}
	n := uint64(schemas.Instructions(pattern)) / costlyInstructions //nolint:gosec // It is not negative.
	p.known.Add(pattern, n)
	return n
}

// costOfMatch is upstream's cost of a call, of which the second argument is a pattern, with the length of the pattern's
// program if that is more than upstream guesses.
func (p *patterns) costOfMatch(args []ref.Val, result ref.Val) *uint64 {
	return p.cost(args, result, 1)
}

// costOfFindAll is that of as many matches as there may be.
func (p *patterns) costOfFindAll(args []ref.Val, result ref.Val) *uint64 {
	return p.cost(args, result, matchesOf(args))
}

func (p *patterns) cost(args []ref.Val, result ref.Val, matches int64) *uint64 {
	if len(args) < 2 {
		return nil
	}
	if types.IsError(result) { // nothing was matched; the cost must not hide why
		cost := uint64(1)
		return &cost
	}
	text, isText := args[0].(types.String)
	pattern, isPattern := args[1].(types.String)
	if !isText || !isPattern {
		return nil
	}
	n := size(text)
	characters := uint64(math.Ceil((1 + float64(n)) * common.StringTraversalCostFactor))
	instructions := uint64(math.Ceil(float64(size(pattern)) * common.RegexStringLengthCostFactor))
	cost := characters * max(instructions, p.weight(string(pattern))) * uint64(times(n, matches)) //nolint:gosec // It is not negative.
	return &cost
}

// costOfCheck is what it costs to compile the pattern that is checked.
func (p *patterns) costOfCheck(args []ref.Val, _ ref.Val) *uint64 {
	cost := uint64(1)
	if len(args) == 1 {
		if pattern, ok := args[0].(types.String); ok {
			cost = max(cost, p.weight(string(pattern)))
		}
	}
	return &cost
}

// size of a string in characters, or of a list in elements, as CEL counts it.
func size(s traits.Sizer) int64 {
	n, ok := s.Size().(types.Int)
	if !ok {
		return 0
	}
	return int64(n)
}
