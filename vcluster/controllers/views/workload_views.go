// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/informers/batch"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// Workloads returns what the named controller sees of workloads.
func Workloads(name string, pace *Pace, seen informers.SharedInformerFactory) informers.SharedInformerFactory {
	switch name {
	case names.ReplicaSetController, names.StatefulSetController:
		return workloadView{seen, func(all appsinformers.Interface) appsinformers.Interface {
			return selectingApps{all, pace}
		}}
	case names.JobController:
		return workloadView{seen, func(all appsinformers.Interface) appsinformers.Interface { return all }}
	case names.DeploymentController:
		return workloadView{seen, func(all appsinformers.Interface) appsinformers.Interface { return revisions{all, pace} }}
	}
	return seen
}

type workloadView struct {
	informers.SharedInformerFactory
	apps func(appsinformers.Interface) appsinformers.Interface
}

func (v workloadView) Apps() apps.Interface {
	return appsGroupView{v.SharedInformerFactory.Apps(), v.apps}
}

func (v workloadView) Batch() batch.Interface {
	return batchGroupView{v.SharedInformerFactory.Batch()}
}

type appsGroupView struct {
	apps.Interface
	view func(appsinformers.Interface) appsinformers.Interface
}

func (g appsGroupView) V1() appsinformers.Interface { return g.view(g.Interface.V1()) }

type batchGroupView struct{ batch.Interface }

func (g batchGroupView) V1() batchinformers.Interface { return selectingJobs{g.Interface.V1()} }

// selectingApps is a view that finds what selects a pod as [selects] does.
type selectingApps struct {
	appsinformers.Interface
	pace *Pace
}

func (v selectingApps) ReplicaSets() appsinformers.TypedReplicaSetInformer {
	return appsinformers.ToTypedReplicaSetInformer(selectingReplicaSets{v.Interface.ReplicaSets()})
}

func (v selectingApps) StatefulSets() appsinformers.TypedStatefulSetInformer {
	return appsinformers.ToTypedStatefulSetInformer(selectingStatefulSets{v.Interface.StatefulSets()})
}

func (v selectingApps) ControllerRevisions() appsinformers.TypedControllerRevisionInformer {
	return appsinformers.ToTypedControllerRevisionInformer(pacedRevisions{v.Interface.ControllerRevisions(), v.pace})
}

// pacedRevisions takes time to find those without an owner, which a StatefulSet compares with its selector.
type pacedRevisions struct {
	appsinformers.ControllerRevisionInformer
	pace *Pace
}

func (i pacedRevisions) Informer() cache.SharedIndexInformer {
	return indexInformer{i.ControllerRevisionInformer.Informer(), i.pace.index}
}

type selectingReplicaSets struct {
	appsinformers.ReplicaSetInformer
}

func (i selectingReplicaSets) Lister() appslisters.ReplicaSetLister {
	return replicaSetsOfPods{i.ReplicaSetInformer.Lister()}
}

type selectingStatefulSets struct {
	appsinformers.StatefulSetInformer
}

func (i selectingStatefulSets) Lister() appslisters.StatefulSetLister {
	return statefulSetsOfPods{i.StatefulSetInformer.Lister()}
}

type selectingJobs struct{ batchinformers.Interface }

func (v selectingJobs) Jobs() batchinformers.TypedJobInformer {
	return batchinformers.ToTypedJobInformer(selectingJobInformer{v.Interface.Jobs()})
}

type selectingJobInformer struct{ batchinformers.JobInformer }

func (i selectingJobInformer) Lister() batchlisters.JobLister {
	return jobsOfPods{i.JobInformer.Lister()}
}
