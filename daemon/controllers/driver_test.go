package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// drivers is an API server that has one CSIDriver, or none.
type drivers struct {
	API
	driver *storagev1.CSIDriver
	err    error
	asked  int
}

func (d *drivers) GetDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	d.asked++
	return d.driver, d.err
}

// A CSIDriver that came is seen within seconds, one that went within a minute, and an error is no
// response.
func TestDriverIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := false
		good := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
		api := &drivers{err: errors.New("away")}
		c, _ := stand(nil, &shelf{})
		defer c.End()
		c.API = api
		step := func(name string, wait time.Duration, asked int, want string) {
			t.Helper()
			time.Sleep(wait)
			why, err := c.lacksDriver(t.Context())
			if api.asked != asked || err != api.err || (want == "") != (why == "") || !strings.Contains(why, want) {
				t.Errorf("%s: %q, %v after %d requests, want %q after %d", name, why, err, api.asked, want, asked)
			}
		}
		step("the API is away", 0, 1, "")
		api.err = nil
		step("there is none", 0, 2, "no CSIDriver")
		api.driver = good
		step("it was read just now", driverLacking-1, 2, "no CSIDriver")
		step("it came", 1, 3, "")
		api.driver = nil
		step("it is good for a while", driverGood-1, 3, "")
		step("it went", 1, 4, "no CSIDriver")
	})
}

// GetDriver makes api a server that has no CSIDriver.
func (a *api) GetDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	a.asked = append(a.asked, "driver")
	return nil, a.err()
}

// A claim for a volume with source csi waits for the CSIDriver, and for an API server that tells
// whether there is one. No other claim waits for it.
func TestNoCSIVolumeBeforeItsDriver(t *testing.T) {
	for _, source := range []string{plan.SourceHostPath, plan.SourceCSI} {
		server := &api{}
		c, _ := stand(server, &shelf{})
		c.Provisioner, c.nodes.number = "p", 1
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "p", Parameters: map[string]string{"source": source}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node, Labels: map[string]string{plan.HostnameLabel: "host-a"}}}
		c.Listers.Classes, c.Listers.Nodes = watchedClass{class, true}, one[*corev1.Node]{node}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
		claim.Annotations = map[string]string{plan.StorageProvisioner: "p", plan.SelectedNode: c.Node}
		claim.Spec.StorageClassName = &class.Name
		_, _, verdict, err := c.decide(t.Context(), claim)
		waits := verdict.Action == plan.Wait && verdict.Reason == plan.ReasonDriver && verdict.After > 0
		if err != nil || waits != (source == plan.SourceCSI) {
			t.Errorf("%s: %+v, %v", source, verdict, err)
		}
		c.driver, server.away = lately[string]{}, true
		if _, _, verdict, err = c.decide(t.Context(), claim); (err != nil) != (source == plan.SourceCSI) {
			t.Errorf("%s, while the API is away: %+v, %v", source, verdict, err)
		}
	}
}
