// Command shared is what the footprint benchmark compares with: the same two watches by the
// library's shared informers, as a provisioner is usually built.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() { os.Exit(run(os.Args[1])) }

func run(kubeconfig string) int {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	factory.StartWithContext(context.Background())
	factory.WaitForCacheSyncWithContext(context.Background())
	fmt.Println("synced", len(claims.GetStore().List()), len(volumes.GetStore().List()))
	select {}
}
