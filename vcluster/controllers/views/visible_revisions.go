// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

const (
	// revisionBytes is how large the templates of the ReplicaSets are, encoded, that the controller of Deployments sees of one
	// Deployment. Whenever one of them changes, it copies each and compares it with the Deployment's about six times, which takes up
	// to 55 ns for each byte: 28 seconds for 1,000 ReplicaSets.
	revisionBytes = 1 << 20
	// fewRevisions is how many it sees in any case: as many as there are by default, and one that is rolled out.
	fewRevisions = 12
	// ownership is about how long it takes to find that a ReplicaSet belongs to another Deployment.
	ownership = 200 * time.Nanosecond
)

// revisions is a view for the controller of Deployments. Of a Deployment with many large ReplicaSets, it has those with replicas and
// the newest. Others are left as they are until those before them are deleted.
type revisions struct {
	appsinformers.Interface
	pace *Pace
}

func (v revisions) ReplicaSets() appsinformers.TypedReplicaSetInformer {
	return appsinformers.ToTypedReplicaSetInformer(revisionInformer{v.Interface.ReplicaSets(), v.pace})
}

type revisionInformer struct {
	appsinformers.ReplicaSetInformer
	pace *Pace
}

func (i revisionInformer) Lister() appslisters.ReplicaSetLister {
	return revisionLister{i.ReplicaSetInformer.Lister(), i.pace}
}

type revisionLister struct {
	appslisters.ReplicaSetLister
	pace *Pace
}

func (l revisionLister) ReplicaSets(namespace string) appslisters.ReplicaSetNamespaceLister {
	return revisionNamespaceLister{l.ReplicaSetLister.ReplicaSets(namespace), l.pace}
}

type revisionNamespaceLister struct {
	appslisters.ReplicaSetNamespaceLister
	pace *Pace
}

func (l revisionNamespaceLister) List(selector labels.Selector) ([]*appsv1.ReplicaSet, error) {
	all, err := l.ReplicaSetNamespaceLister.List(selector)
	if err != nil {
		return nil, err
	}
	return visible(all), l.pace.wait(time.Duration(len(all)) * ownership)
}

// visible returns all ReplicaSets without a controller, and those of each controller that it is to see.
func visible(all []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	number := map[types.UID]int{}
	for _, r := range all {
		number[ownerOf(r)]++
	}
	many := map[types.UID][]*appsv1.ReplicaSet{}
	all = slices.DeleteFunc(all, func(r *appsv1.ReplicaSet) bool {
		owner := ownerOf(r)
		if owner == "" || number[owner] <= fewRevisions {
			return false
		}
		many[owner] = append(many[owner], r)
		return true
	})
	for _, of := range many {
		slices.SortFunc(of, func(a, b *appsv1.ReplicaSet) int {
			return cmp.Or(active(b)-active(a), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		bytes := 0
		for i, r := range of {
			if bytes += r.Spec.Template.Size(); i >= fewRevisions && bytes > revisionBytes {
				break
			}
			all = append(all, r)
		}
	}
	return all
}

func ownerOf(r *appsv1.ReplicaSet) types.UID {
	if owner := metav1.GetControllerOfNoCopy(r); owner != nil {
		return owner.UID
	}
	return ""
}

// active is 1 for a ReplicaSet that has replicas.
func active(r *appsv1.ReplicaSet) int {
	if r.Spec.Replicas != nil && *r.Spec.Replicas > 0 || r.Status.Replicas > 0 {
		return 1
	}
	return 0
}
