package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// Of two nodes one is gone and one silent: another node's daemon tells the claims that have their
// volumes there, and a volume that waits there for its removal, what can be done, and counts them.
// The claim of a node that is well is told nothing.
func TestNodeAway(t *testing.T) {
	w := withDriver(t)
	class := w.Class("c", immediate)
	gone, silent := w.newHost("gone").run(), w.newHost("silent").run()
	well := w.newHost("well").serving().run()
	gone.made("lost", class)
	going := gone.made("going", class)
	silent.made("waits", class)
	well.made("used", class)
	gone.loses()
	silent.Kill()
	w.DeleteClaim("going")
	w.Must(w.notReady(silent.node))
	w.Class("published", wait) // a new class is reviewed soon, and else each few minutes
	for _, c := range []struct {
		about cluster.Object
		want  string
	}{
		{w.get("lost"), gone.node + " does not exist any more, and nothing is done"},
		{w.Volume(going.Name), gone.node + " does not exist any more, and the volume waits"},
		{w.get("waits"), silent.node + " is not Ready, and nothing is done"},
	} {
		told := w.event(c.about, "NodeAway")
		if told.Type != corev1.EventTypeWarning ||
			!strings.HasPrefix(told.Message, "node "+c.want) ||
			!strings.Contains(told.Message, "hostpath-provisioner import") ||
			!strings.HasSuffix(told.Message, "forget-node "+strings.Fields(c.want)[0]) {
			t.Errorf("%s was told %q", c.about.GetName(), told.Message)
		}
	}
	well.tells("\nhostpath_provisioner_volumes_away 3\n")
	events := listIn(w, w.events(), metav1.ListOptions{
		FieldSelector: "reason=NodeAway,involvedObject.name=used"})
	if len(events.Items) > 0 {
		t.Errorf("a claim of a node that is well was told %q", events.Items[0].Message)
	}
}
