// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
)

// coreView is a factory whose informers of core/v1 a controller sees as view has them.
type coreView struct {
	informers.SharedInformerFactory
	view func(coreinformers.Interface) coreinformers.Interface
}

func (f coreView) Core() core.Interface { return coreGroupView{f.SharedInformerFactory.Core(), f.view} }

type coreGroupView struct {
	core.Interface
	view func(coreinformers.Interface) coreinformers.Interface
}

func (g coreGroupView) V1() coreinformers.Interface { return g.view(g.Interface.V1()) }
