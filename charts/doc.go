// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts holds Berth's Helm charts, a directory each, and the tests that
// what they render is what the API server and Berth take.
//
// Nothing calls it: it has no code but these tests. Some of them also write
// what a chart takes from the code.
package charts

//go:generate env BERTH_UPDATE_CHARTS=1 go test . -vet=off -count=1 -run ^TestTheChartTakesFromTheCode
//go:generate go run ../hack/valuesreference berth/values.yaml ../docs/reference/values.md
//go:generate go run ../hack/valuesreference space/values.yaml ../docs/reference/values-space.md
