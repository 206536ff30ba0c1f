import glob,collections,re,subprocess,os
os.chdir("/work/main")
old=collections.defaultdict(set)
for f in glob.glob("/tmp/map/*.names.tsv"):
    for l in open(f):
        m,n,*r=l.rstrip("\n").split("\t"); old[n].add(m)
mine={}; new=collections.defaultdict(list); mods={}; newmods=collections.Counter()
for l in open("/tmp/map/replicator_root.map"):
    l=l.rstrip("\n")
    if not l or l[0]=="#": continue
    p=l.split("\t")
    assert len(p)==3,l
    if p[0]=="name": assert p[1] not in mine,l; mine[p[1]]=p[2]; new[p[2]].append(p[1])
    if p[0]=="module": mods[p[1]]=p[2]; newmods[p[2]]+=1
    if p[0]=="attr":
        m,ca=p[1].split(":"); a=ca.split(".")[1]
        c=subprocess.run(["git","grep","-hP",rf"\.{p[2]}\b|def {p[2]}\b|\b{p[2]}\s*[:=]","--","*.py"],capture_output=True,text=True).stdout
        d=subprocess.run(["git","grep","-nP",rf"def {a}\b","--","*.py"],capture_output=True,text=True).stdout
        print("ATTR",a,"->",p[2],"new already:",len(c.splitlines()),"defs:",d.count("\n"))
othermods={}
for f in glob.glob("/tmp/map/*.map"):
    if "replicator_root" in f: continue
    for l in open(f):
        p=l.rstrip("\n").split("\t")
        if p[0]=="name":
            if p[2] in new: print("OTHER MAP",f,p,new[p[2]])
            old[p[1].split(":")[1]].discard(p[1].split(":")[0])
        if p[0]=="module":
            othermods[p[1]]=p[2]
            if p[2] in newmods: print("MODULE CLASH",p)
for m,c in newmods.items():
    if c>1: print("module twice",m)
for o in mine:
    m,n=o.split(":")
    if m not in old[n]: print("NO SUCH",o)
for n,os_ in new.items():
    if len(os_)>1: print("twice",n,os_)
    others=[m for m in old.get(n,()) if f"{m}:{n}" not in mine]
    if others: print("TAKEN",n,os_,others)
    if len(n)>30: print("long",n)
    # local names in own/other modules
    g=subprocess.run(["git","grep","-lw",n,"--","*.py"],capture_output=True,text=True).stdout.split()
    if g: print("appears",n,os_[0],g[:6])
allmods=[f[:-3].replace("/",".") for f in subprocess.check_output(["git","ls-files","replicator/*.py"],text=True).split() if f.count("/")==1 and "__init__" not in f]
print("unmoved:",[m for m in allmods if m not in mods])
one=0;tot=0
for l in open("/tmp/map/replicator.names.tsv"):
    m,n,k,*r=l.rstrip("\n").split("\t"); fl=r[-1]
    if m.count(".")!=1: continue
    fn=mine.get(f"{m}:{n}",n)
    if k=="func":
        tot+=1; one+="_" not in fn
    if f"{m}:{n}" not in mine:
        if "OWN-MODULE-ONLY" in fl and k=="const": continue
        o=[x for x in old[n] if x!=m]
        print("kept",m,n,k,"DUP "+",".join(o) if o else "")
print(len(mods),len(mine),"oneword",one,tot)
